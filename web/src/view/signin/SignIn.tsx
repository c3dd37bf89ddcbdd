// The sign-in of an agent: the offered methods, and, for a key with the right, their forms.

import { useState } from "react";
import type { AuthMethod, GatewayClient } from "@acp-gateway/client";
import { line, records, text } from "@acp-gateway/client/read";
import { explain } from "../../model/explain";
import { useMay } from "../../model/rights";
import { takesKey } from "../../model/signin";
import { strings } from "../../strings";
import { ApiKeyForm } from "./ApiKeyForm";
import "./signin.css";
import { SignInTerminal } from "./SignInTerminal";

interface Props {
  client: GatewayClient;
  agent: string;
  methods: AuthMethod[];
}

type Step = { at: "choice" } | { at: "busy" } | { at: "terminal"; url: string } | { at: "done" } | { at: "failed"; why: string };

export function SignIn({ client, agent, methods }: Props) {
  const may = useMay(client, "admin");
  const [step, setStep] = useState<Step>({ at: "choice" });
  const known = records(methods).flatMap((method) => (text(method["id"]) === null ? [] : [method]));

  async function signIn(methodId: string, apiKey?: string) {
    setStep({ at: "busy" });
    try {
      const terminal = await client.signIn(agent, methodId, apiKey);
      setStep(terminal ? { at: "terminal", url: terminal.url } : { at: "done" });
    } catch (reason) {
      const words = explain(reason);
      setStep({ at: "failed", why: [words.title, words.detail].filter(Boolean).join(" ") });
    }
  }

  if (step.at === "terminal") {
    return <SignInTerminal client={client} url={step.url} onEnd={(why) => setStep(why === null ? { at: "done" } : { at: "failed", why })} />;
  }
  return (
    <div className="sign-in">
      {known.length > 0 && (
        <ul className="sign-in-methods" aria-label={strings.signin.ways}>
          {known.map((method) => (
            <li key={String(method["id"])}>
              <p className="sign-in-name">{line(method["name"]) ?? String(method["id"])}</p>
              {line(method["description"]) && <p>{line(method["description"])}</p>}
              {may && step.at !== "done" && takesKey(method) && (
                <ApiKeyForm busy={step.at === "busy"} onKey={(key) => void signIn(String(method["id"]), key)} />
              )}
              {may && step.at !== "done" && !takesKey(method) && (
                <button className="button small" type="button" aria-disabled={step.at === "busy"} onClick={() => step.at !== "busy" && void signIn(String(method["id"]))}>
                  {method["type"] === "terminal" ? strings.signin.signInAtTerminal : strings.signin.signIn}
                </button>
              )}
            </li>
          ))}
        </ul>
      )}
      {!may && <p className="sign-in-who">{strings.signin.needsAdmin}</p>}
      <p role="status">
        {step.at === "busy" && strings.signin.busy}
        {step.at === "done" && strings.signin.done}
        {step.at === "failed" && strings.signin.failed(step.why)}
      </p>
    </div>
  );
}
