"""Jobs as values: the definition, the job file, placements and rejection reasons. Pure."""
