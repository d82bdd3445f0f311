"""Messages of a keyed fleet: a receiver takes each message of a live process with the key once, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testudo_deploy.authentication.fleet_key import FleetKey, FleetKeyError, load_key, new_key, write_key
from testudo_deploy.authentication.message_codes import (
    AuthenticationError,
    MessageSigner,
    MessageVerifier,
    split_trailer,
)
from testudo_deploy.authentication.process_epochs import ProcessEpochs

KEY = FleetKey(bytes(range(32)))
TOPIC = "/r0/peer_state"


class Network:
    """Processes that exchange challenges and answers, as on the topic of a fleet."""

    def __init__(self):
        self.living = []
        self.sent = []

    def process(self, key=KEY):
        epochs = ProcessEpochs(key, self.send)
        self.living.append(epochs)
        return epochs

    def send(self, data):
        self.sent.append(data)
        for process in tuple(self.living):
            process.hear(data)

    def kill(self, process):
        self.living.remove(process)


@pytest.fixture
def network():
    return Network()


def refused_as(verifier, data, now_s):
    with pytest.raises(AuthenticationError) as caught:
        verifier.verify(data, now_s)
    return caught.value.code


def connected(network, topic=TOPIC):
    """Return a signer whose process has proven itself to a verifier, with both."""
    sender, receiver = network.process(), network.process()
    signer, verifier = MessageSigner(KEY, topic, sender), MessageVerifier(KEY, topic, receiver)
    assert refused_as(verifier, signer.sign(b"first"), 0.0) == "unproven"
    assert verifier.verify(signer.sign(b"second"), 0.1) == b"second"
    return sender, receiver, signer, verifier


@given(message=st.binary(max_size=70), flipped=st.integers(0), bit=st.integers(0, 7))
def test_a_message_arrives_unchanged_or_not_at_all(message, flipped, bit):
    """Any changed bit, of message, numbers or code, is refused."""
    _, _, signer, verifier = connected(Network())
    data = signer.sign(message)
    assert len(data) % 4 == 0
    assert split_trailer(data)[0] == message
    changed = bytearray(data)
    changed[flipped % len(data)] ^= 1 << bit
    assert refused_as(verifier, bytes(changed), 0.2) in {"forged", "unsigned"}
    assert verifier.verify(data, 0.2) == message


@pytest.mark.parametrize("data", [b"", b"short", b"a plain message without any code, longer than a trailer is"])
def test_a_message_without_a_code_is_refused(network, data):
    assert refused_as(connected(network)[3], data, 0.2) == "unsigned"


def test_a_message_counts_once_and_in_order(network):
    _, _, signer, verifier = connected(network)
    late, newest = signer.sign(b"late"), signer.sign(b"newest")
    assert verifier.verify(newest, 0.2) == b"newest"
    assert refused_as(verifier, newest, 0.3) == "replayed"
    assert refused_as(verifier, late, 0.3) == "replayed"


@pytest.mark.parametrize(("key", "topic"), [(KEY, "/r1/peer_state"), (new_key(), TOPIC)])
def test_a_code_of_another_topic_or_key_is_refused(network, key, topic):
    """A message of r1 under the name of r0, and one of a fleet with another key."""
    sender, _, _, verifier = connected(network)
    assert refused_as(verifier, MessageSigner(key, topic, sender).sign(b"x"), 0.2) == "forged"


def test_recorded_messages_of_a_process_that_has_ended_are_never_accepted(network):
    """They have right codes. A receiver that started later gets no answer to its challenge."""
    sender, _, signer, _ = connected(network)
    recorded = [signer.sign(b"yesterday") for _ in range(3)]
    network.kill(sender)
    newcomer = MessageVerifier(KEY, TOPIC, network.process())
    for k, data in enumerate(recorded):
        assert refused_as(newcomer, data, float(k)) == "unproven"
    answers = [data for data in network.sent if data[0] == 2]
    for data in answers:  # recorded answers, to the challenges of others
        network.send(data)
    assert refused_as(newcomer, recorded[0], 9.0) == "unproven"


def test_a_new_process_takes_over_only_after_the_old_one_is_silent(network):
    old, _, signer, verifier = connected(network)
    second = MessageSigner(KEY, TOPIC, network.process())
    assert refused_as(verifier, second.sign(b"x"), 0.2) == "unproven"
    assert refused_as(verifier, second.sign(b"x"), 0.3) == "second_process"
    assert verifier.verify(signer.sign(b"alive"), 0.4) == b"alive"
    network.kill(old)
    assert refused_as(verifier, second.sign(b"x"), 0.89) == "second_process"
    assert verifier.verify(second.sign(b"mine"), 0.91) == b"mine"
    assert refused_as(verifier, signer.sign(b"resumed"), 5.0) == "replayed"


def test_challenges_are_limited_and_need_the_key(network):
    """A flood of replayed messages causes few challenges; a challenge without the key gets no answer."""
    sender, _, signer, _ = connected(network)
    recorded = signer.sign(b"x")
    network.kill(sender)
    before = len(network.sent)
    verifier = MessageVerifier(KEY, TOPIC, network.process())
    for k in range(100):
        assert refused_as(verifier, recorded, 0.001 * k) == "unproven"
    assert len(network.sent) - before <= 2
    for data in (b"", b"\x01" * 41, b"\x01" + sender.own + bytes(32)):
        sender.hear(data)
    assert len(network.sent) - before <= 2


def test_a_key_file_is_private_and_exact(tmp_path):
    file = tmp_path / "fleet.key"
    key = new_key()
    write_key(key, file)
    assert load_key(file) == key
    assert file.stat().st_mode & 0o777 == 0o600
    assert key.secret.hex() not in repr(key)
    with pytest.raises(FleetKeyError, match="exists"):
        write_key(key, file)
    file.chmod(0o640)
    with pytest.raises(FleetKeyError, match="chmod 600"):
        load_key(file)
    file.chmod(0o600)
    for text in ("", "testudo-fleet-key-1 abc", f"testudo-fleet-key-2 {'0' * 64}"):
        file.write_text(text)
        with pytest.raises(FleetKeyError, match="not a fleet key"):
            load_key(file)
    with pytest.raises(FleetKeyError, match="testudo security FLEET --key"):
        load_key(tmp_path / "missing.key")
