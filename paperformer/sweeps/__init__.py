"""Tables of runs that differ in some fields: what is asked, how it is carried out, and what came of it."""
