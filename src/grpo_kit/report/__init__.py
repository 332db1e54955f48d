"""`grpo-kit report`: runs as one HTML file that needs no network, with curves over seeds and a view of every token."""
