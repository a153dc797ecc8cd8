"""`leasehold demo`: the main job on real input, and the answer that must come out."""
