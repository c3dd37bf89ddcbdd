// The owner of the key that the page uses, and what the key permits.

import { useEffect, useState } from "react";
import type { About, GatewayClient } from "@acp-gateway/client";
import { lookup } from "@acp-gateway/client/read";
import { strings } from "../strings";
import { Icon } from "./Icon";
import { Popover } from "./Popover";

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
              <Icon name="key" /> <span className="key-rights-owner">{strings.key.signedInAs(about.principal.id)}</span>
            </>
          }
          name={strings.key.rights}
          place="above"
        >
          {() => (
            <>
              <p className="popover-title">{strings.key.may}</p>
              <ul className="key-rights-list">
                {about.scopes.map((scope) => (
                  <li key={scope}>{lookup(strings.key.scopes, scope) ?? scope}</li>
                ))}
              </ul>
            </>
          )}
        </Popover>
      )}
    </div>
  );
}
