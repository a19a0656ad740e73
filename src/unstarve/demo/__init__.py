"""The article's toy pipeline and the journey from starved to fed. Imports nothing of the diagnosis until it runs."""
