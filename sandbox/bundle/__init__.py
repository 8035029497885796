"""A built candidate as data: launch plans in JSON and the cubins they launch. Hostile until `check` has read it."""
