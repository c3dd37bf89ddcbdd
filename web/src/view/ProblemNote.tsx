// What went wrong, in words, and what to do about it.

import { explain, explainProblem } from "../api/problem";
import type { Problem } from "../api/types";
import { visible } from "../model/words";

interface Props {
  error?: unknown;
  problem?: Problem;
  children?: React.ReactNode;
}

export function ProblemNote({ error, problem, children }: Props) {
  const words = problem ? explainProblem(problem) : explain(error);
  return (
    <div className="problem" role={problem ? undefined : "alert"}>
      <p className="problem-title">{words.title}</p>
      {words.detail && <p className="problem-detail">{visible(words.detail)}</p>}
      {words.hint && <p className="problem-hint">{words.hint}</p>}
      {problem?.authMethods && problem.authMethods.length > 0 && (
        <ul>
          {problem.authMethods.map((method) => (
            <li key={method.id}>
              {method.name}
              {method.description ? `: ${method.description}` : ""}
            </li>
          ))}
        </ul>
      )}
      {problem?.stderrTail && (
        <details>
          <summary>What the agent wrote to its error output</summary>
          <pre className="output">{problem.stderrTail}</pre>
        </details>
      )}
      {children}
    </div>
  );
}
