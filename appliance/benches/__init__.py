"""Benches: what the appliance measures about itself, in numbers that someone else can reproduce (DESIGN.md §8.8)."""
