"""The online spot strategy: state in, decision out. Pure; the live broker and the backtest run this same code."""
