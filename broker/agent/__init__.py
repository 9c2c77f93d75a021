"""The agent: wraps a job's command on the machine it runs on. Standard library and obstore only, Python ≥ 3.9 syntax.

It is shipped to bare nodes on its own, so nothing here imports the rest of gpubroker. ``formats`` is what broker and
agent agree on; `broker.runfolder.runfolder` is the broker's side of it.
"""
