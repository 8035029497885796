"""Stage synchronisation: blocks that wait for blocks, and launches that start before those before them have ended.

`stage.stage` reads TTGIR and plans on the CPU. Barriers and copies inside of a block are the stage `deadlock`'s part.
"""
