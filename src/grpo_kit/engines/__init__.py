"""Engines: programs made for inference that write completions and score them, with weights handed to them."""

from grpo_kit.engines.in_process import InProcess
from grpo_kit.engines.role import ENGINES, Engine, Limits, Request, Running, Scored, Written
from grpo_kit.engines.server import Server

ENGINES.built_in |= {"in_process": InProcess, "server": Server}

__all__ = ["ENGINES", "Engine", "InProcess", "Limits", "Request", "Running", "Scored", "Server", "Written"]
