"""What the shield does to learning, and what it costs: `testudo bench learning`."""
