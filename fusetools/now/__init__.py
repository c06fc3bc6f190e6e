"""What is happening at this moment: read from /proc and the like, without tracing."""
