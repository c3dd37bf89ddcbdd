// An MCP server on stdio, for tests: its tool `repeat` returns the text that it gets.
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { z } from "zod";

const server = new McpServer({ name: "echo", version: "1.0.0" });
server.registerTool("repeat", { inputSchema: { text: z.string() } }, ({ text }) => ({
  content: [{ type: "text", text: `repeated: ${text}` }],
}));
await server.connect(new StdioServerTransport());
