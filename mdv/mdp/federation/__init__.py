"""An MDP in a federation: its fragment, its superpeer or peer, and its links."""
