// The tasks of the gateway, newest first, each with a link to its session.

import type { ReactNode } from "react";
import type { GatewayClient, Task } from "@acp-gateway/client";
import { visible } from "@acp-gateway/client/read";
import { useMay } from "../model/rights";
import { sessionHref } from "../model/route";
import { useTasks } from "@acp-gateway/react";
import { isOpen, taskTone, taskWords } from "../model/tasks";
import { strings } from "../strings";
import { Ago } from "./Ago";
import { Page } from "./Page";
import { Verbatim } from "./Parts";
import { ProblemNote } from "./ProblemNote";
import { useProblem } from "./useProblem";
import { Words } from "./Words";

export function TasksPage({ client, menu }: { client: GatewayClient; menu: ReactNode }) {
  const list = useTasks(client);
  const mayPrompt = useMay(client, "prompt");
  const [error, setError] = useProblem(list.tasks);

  async function cancel(task: string) {
    try {
      await client.cancelTask(task);
      setError(null);
    } catch (reason) {
      setError(reason);
    }
    list.refresh();
  }

  return (
    <Page title={strings.inbox.tasks} menu={menu}>
      <p className="tasks-lead">
        <Words text={strings.inbox.about}>
          <a href="docs">{strings.inbox.api}</a>
        </Words>
      </p>
      {error !== null && <ProblemNote error={error} />}
      {list.error !== null && list.tasks === null && <ProblemNote error={list.error} />}
      {list.tasks?.length === 0 && <p>{strings.inbox.noTasks}</p>}
      <ul className="task-list">
        {list.tasks?.map((task) => (
          <TaskRow key={task.taskId} task={task} mayPrompt={mayPrompt} onCancel={() => void cancel(task.taskId)} />
        ))}
      </ul>
      {list.more && (
        <button className="button" type="button" onClick={list.loadMore}>
          {strings.inbox.olderTasks}
        </button>
      )}
    </Page>
  );
}

function TaskRow({ task, mayPrompt, onCancel }: { task: Task; mayPrompt: boolean; onCancel(): void }) {
  const title = visible(task.description ?? strings.inbox.noDescription);
  const output = task.result?.output ?? "";
  return (
    <li className="task">
      <p className="task-title" dir="auto">{title}</p>
      <p className="task-meta">
        <span className={`agent-state agent-${taskTone(task)}`}>
          <span className="agent-dot" aria-hidden="true" />
          {taskWords(task)}
        </span>
        <span>
          {task.agent} · {task.priority} · {task.by} · <Ago time={task.endedAt ?? task.startedAt ?? task.createdAt} />
        </span>
      </p>
      {task.result?.error && <ProblemNote problem={task.result.error} />}
      {output !== "" && (
        <details>
          <summary>{strings.common.output}</summary>
          <Verbatim label={strings.common.output} text={output} />
        </details>
      )}
      <p className="task-actions">
        {task.sessionId != null && (
          <a className="button small" href={sessionHref(task.sessionId)}>
            {strings.common.openSession}
            <span className="hidden">{strings.inbox.ofTask(title)}</span>
          </a>
        )}
        {mayPrompt && isOpen(task) && (
          <button className="button small" type="button" onClick={onCancel}>
            {strings.common.cancel}
            <span className="hidden"> {title}</span>
          </button>
        )}
      </p>
    </li>
  );
}
