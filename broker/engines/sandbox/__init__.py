"""The sandbox: a simulated GPU market whose machines are real processes on this machine."""
