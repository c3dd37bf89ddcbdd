// An error as text, with the next step.

import { useContext } from "react";
import { ApiProblem, known, type AuthMethod, type Problem } from "@acp-gateway/client";
import { visible } from "@acp-gateway/client/read";
import { explain, explainProblem } from "../model/explain";
import { strings } from "../strings";
import { RawValue } from "./ActionView";
import { Icon } from "./Icon";
import { WhenOpened } from "./WhenOpened";
import { Where } from "./where";

interface Props {
  error?: unknown;
  problem?: Problem;
  children?: React.ReactNode;
}

export function ProblemNote({ error, problem, children }: Props) {
  const words = problem ? explainProblem(problem) : explain(error);
  const about = problem ?? (error instanceof ApiProblem ? error.problem : undefined);
  return (
    <div className="problem" role={problem ? undefined : "alert"}>
      <p className="problem-title">
        <Icon name="failed" /> {words.title}
      </p>
      {words.detail && <p className="problem-detail">{visible(words.detail)}</p>}
      {words.hint && <p className="problem-hint">{words.hint}</p>}
      {about && known(about.code) === "agent_auth_required" && <SignInPlace methods={about.authMethods ?? []} />}
      {about?.acp?.data != null && (
        <details>
          <summary>{strings.problems.reported}</summary>
          <RawValue label={strings.problems.errorData} value={about.acp.data} />
        </details>
      )}
      {problem?.stderrTail && (
        <details>
          <summary>{strings.problems.errorOutput}</summary>
          <pre className="output">{problem.stderrTail}</pre>
        </details>
      )}
      {children}
    </div>
  );
}

function SignInPlace({ methods }: { methods: AuthMethod[] }) {
  const where = useContext(Where);
  if (!where?.agent) return null;
  const { client, agent } = where;
  return <WhenOpened>{({ SignIn }) => <SignIn methods={methods} client={client} agent={agent} />}</WhenOpened>;
}
