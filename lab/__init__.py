"""Stand-in Sparks on one machine: real systemd, sshd and Docker, no GPU."""

from pathlib import Path

#: Recipes of models that stand-ins serve; of an inventory's `recipe_folders`.
RECIPES = str(Path(__file__).parent / "recipes")
