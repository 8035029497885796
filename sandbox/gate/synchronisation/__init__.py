"""Stage synchronisation: blocks that wait for other blocks, and launches that overlap earlier ones.

`stage.stage` reads TTGIR and plans on the CPU. Barriers and copies inside of a block belong to the stage `deadlock`.
"""
