"""Pure library of Lockstep: recipes, fit, licences, lock, drift. Imports no pyinfra."""
