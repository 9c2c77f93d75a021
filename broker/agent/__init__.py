"""The agent: wraps a job's command on the machine it runs on. Standard library and obstore only, Python ≥ 3.9 syntax.

It is shipped to bare nodes without the rest of gpubroker, so nothing here imports the rest. ``formats`` holds the
documents that broker and agent exchange; `broker.engines.runfolder.runfolder` is the broker's side of the exchange.
"""
