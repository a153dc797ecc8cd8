"""A package only so that its tests are `testkit.tests`, and not a second `tests`: no distribution of the kit has it."""
