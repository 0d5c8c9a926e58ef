"""The memory over HTTP and over MCP."""
