"""A built candidate as data: launch plans in JSON and the cubins they launch. Hostile until `validate` has read it."""
