// The user of the key that the page uses, and what the key permits.

import type { GatewayClient } from "@acp-gateway/client";
import { lookup } from "@acp-gateway/client/read";
import { useAbout } from "../model/useAbout";
import { strings } from "../strings";
import { Icon } from "./Icon";
import { Popover } from "./Popover";

export function KeyRights({ client }: { client: GatewayClient }) {
  const about = useAbout(client);
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
