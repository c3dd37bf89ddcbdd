// The owner of the key that the page uses, and what the key permits.

import { useEffect, useState } from "react";
import type { About, GatewayClient } from "@acp-gateway/client";

const SCOPES: Record<string, string> = {
  read: "read sessions",
  prompt: "send messages",
  approve: "answer requests of agents",
  files: "read and change files",
  mcp: "bring MCP servers",
  fleet: "offer agents",
  admin: "manage the gateway",
};

export function KeyRights({ client }: { client: GatewayClient }) {
  const [about, setAbout] = useState<About | null>(null);
  useEffect(() => {
    let shown = true;
    // Without the rights, the rest of the page works.
    client.about().then((answer) => shown && setAbout(answer), () => undefined);
    return () => {
      shown = false;
    };
  }, [client]);
  if (!about) return null;
  return (
    <details className="key-rights">
      <summary>Signed in as {about.principal.id}</summary>
      <p>This key may:</p>
      <ul>
        {about.scopes.map((scope) => (
          <li key={scope}>{SCOPES[scope] ?? scope}</li>
        ))}
      </ul>
    </details>
  );
}
