"""The page of a run: verdict, synchronised timeline, scene, incidents, model, margins and training in one HTML file.

In: a team recording or an animation, with its incidents, gap report and report data as far as they exist.
Out: one self-contained HTML page, its data as JSON, a Rerun recording, a Foxglove layout.
"""
