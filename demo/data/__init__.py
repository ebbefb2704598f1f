"""What the demo model learns from: every text is generated here, nothing is downloaded."""
