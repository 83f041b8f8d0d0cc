from tests.appliance.fixtures import appliance, cli, reads, sample_files, settings, tiny_models

__all__ = ["appliance", "cli", "reads", "sample_files", "settings", "tiny_models"]
