"""No test is collected here: these scripts run in two environments, by `make parity`."""

collect_ignore_glob = ["*.py"]
