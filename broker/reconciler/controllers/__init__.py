"""One module for each decision about an open job: placement, enforcement, top-ups, strategy advice."""
