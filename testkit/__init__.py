"""A package only so that its tests are `testkit.tests`, and not a second `tests`. No distribution has this file."""
