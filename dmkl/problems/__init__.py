"""What is minimised: formulations, and the norms, proximal maps and losses they are made of."""
