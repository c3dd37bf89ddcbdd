// The owner of the key that the page uses, and what the key permits.

import { useEffect, useState } from "react";
import type { About, GatewayClient } from "@acp-gateway/client";
import { lookup } from "@acp-gateway/client/read";
import { Icon } from "./Icon";
import { Popover } from "./Popover";

const SCOPES: Record<string, string> = {
  read: "Read sessions",
  prompt: "Send messages",
  approve: "Answer requests of agents",
  files: "Read and change files",
  mcp: "Bring MCP servers",
  fleet: "Offer agents",
  admin: "Manage the gateway",
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
  return (
    <div className="key-rights">
      {about && (
        <Popover
          button={
            <>
              <Icon name="key" /> <span className="key-rights-owner">Signed in as {about.principal.id}</span>
            </>
          }
          name="Rights of the key"
          place="above"
        >
          {() => (
            <>
              <p className="popover-title">This key may</p>
              <ul className="key-rights-list">
                {about.scopes.map((scope) => (
                  <li key={scope}>{lookup(SCOPES, scope) ?? scope}</li>
                ))}
              </ul>
            </>
          )}
        </Popover>
      )}
    </div>
  );
}
