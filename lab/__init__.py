"""Stand-in Sparks on one machine: real systemd, sshd and Docker, no GPU."""

from pathlib import Path

#: Recipes of models that stand-ins serve, for `recipe_folders` of an inventory.
RECIPES = str(Path(__file__).parent / "recipes")
