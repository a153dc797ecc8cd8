"""What tests of Leasehold and of its extensions stand on: contracts, a simulation, emulators, a clock moved by hand.

    contracts    what a third party's store, hub or sink subclasses as tests, with pytest
    simulation   the real partition manager, strategies and stores under a seeded scheduler with virtual time
    emulators    local Event Hubs and Service Bus servers for the official clients
    commands     `leasehold serve` and `leasehold simulate`, which `leasehold` finds as entry points

Imports of Leasehold what is public and what is internal, and is made for exactly one version of it. Leasehold imports
nothing of this package.
"""
