"""The station page: a fleet in the browser, from this computer only; pure, and a server of the standard library.

In: views of robots, answers of the emergency stop, requests of a browser.
Out: JSON for the page, and requests that the verbs carry out.
"""
