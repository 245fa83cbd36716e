"""Inference engines that programs name: `engine:owlrl!t`. Each runs in a process of its own, with limits."""
