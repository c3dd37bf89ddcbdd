// The page for administrators: one section at a time, each with an address of its own.

import type { ComponentType, ReactNode } from "react";
import type { GatewayClient } from "@acp-gateway/client";
import { missing } from "../../model/rights";
import { ADMIN_HREF, ADMIN_SECTIONS, type AdminSection } from "../../model/route";
import { useAbout } from "../../model/useAbout";
import { strings } from "../../strings";
import { download } from "../download";
import { Page } from "../Page";
import { ProblemNote } from "../ProblemNote";
import { useProblem } from "../useProblem";
import { Words } from "../Words";
import "./admin.css";
import { Agents } from "./Agents";
import { Audit } from "./Audit";
import { Configuration } from "./Configuration";
import { Fleet } from "./Fleet";
import { Keys } from "./Keys";
import { Overview } from "./Overview";
import { Storage } from "./Storage";
import { Webhooks } from "./Webhooks";

const SECTIONS: Record<AdminSection, ComponentType<{ client: GatewayClient }>> = {
  overview: Overview,
  agents: Agents,
  storage: Storage,
  keys: Keys,
  fleet: Fleet,
  webhooks: Webhooks,
  audit: Audit,
  configuration: Configuration,
};

export function AdminPage({ client, section, menu }: { client: GatewayClient; section: AdminSection; menu: ReactNode }) {
  const about = useAbout(client);
  return (
    <Page title={strings.admin.title} menu={menu} className="tasks admin">
      {about !== null && missing(about, "admin") !== null && (
        <p>
          <Words text={strings.key.mayNotManage} />
        </p>
      )}
      {missing(about, "admin") === null && <Sections client={client} section={section} />}
    </Page>
  );
}

function Sections({ client, section }: { client: GatewayClient; section: AdminSection }) {
  const [error, setError] = useProblem(section);
  const Section = SECTIONS[section];

  async function save() {
    try {
      download("acp-gateway-diagnostics.json", "application/json", await client.diagnosticsText());
      setError(null);
    } catch (reason) {
      setError(reason);
    }
  }

  return (
    <>
      <nav className="admin-sections" aria-label={strings.admin.title}>
        {ADMIN_SECTIONS.map((name) => (
          <a key={name} href={`${ADMIN_HREF}/${name}`} aria-current={name === section ? "page" : undefined}>
            {strings.admin.sections[name]}
          </a>
        ))}
      </nav>
      <h2>{strings.admin.sections[section]}</h2>
      <Section client={client} />
      <p className="admin-download">
        <button className="button" type="button" onClick={() => void save()}>
          {strings.admin.download}
        </button>
        <span>{strings.admin.downloadHint}</span>
      </p>
      {error !== null && <ProblemNote error={error} />}
    </>
  );
}
