"""The record of runs in SQLite: the store, profiles, prompts, calls of models, requests of the user, history."""
