// The content of a tool call: text, changes to files, and the output of commands.

import { memo } from "react";
import type { Raw, Terminal } from "@acp-gateway/client";
import { blocks, line, lookup, text, visible } from "@acp-gateway/client/read";
import { isPlain } from "../model/output";
import { fenced } from "../model/parts";
import { strings } from "../strings";
import { CodeBlock } from "./CodeBlock";
import { ContentBlocks } from "./ContentBlocks";
import { DiffView } from "./DiffView";
import { Output } from "./Parts";
import { TerminalBlock } from "./TerminalBlock";

interface Props {
  content: Raw[];
  terminals: Record<string, Terminal>;
  /** The kind of the call, which says whether its text is Markdown. */
  toolKind?: string;
  /** The command of a call that executes one. */
  command?: string;
  running?: boolean;
}

export function ToolContent({ content, ...rest }: Props) {
  return (
    <>
      {content.map((part, index) => (
        <Part key={index} part={part} {...rest} />
      ))}
    </>
  );
}

function Part({ part, terminals, toolKind = "other", command = "", running = false }: Omit<Props, "content"> & { part: Raw }) {
  switch (part["type"]) {
    case "content": {
      const all = blocks([part["content"]]);
      const words = all[0]?.type === "text" ? (all[0].text ?? "") : null;
      if (words === null || !isPlain(toolKind)) return <ContentBlocks blocks={all} />;
      if (toolKind === "execute") return <CommandOutput command={command} output={fenced(words)?.text ?? words} running={running} exitCode={null} />;
      return <ToolText text={words} />;
    }
    case "diff":
      return <DiffView path={line(part["path"]) ?? ""} before={line(part["oldText"])} after={line(part["newText"]) ?? ""} />;
    case "terminal": {
      const terminalId = text(part["terminalId"]) ?? "";
      const terminal = lookup(terminals, terminalId);
      return terminal ? <TerminalBlock terminal={terminal} /> : <p className="reference">{strings.tools.terminal(visible(terminalId))}</p>;
    }
    default:
      return <p className="reference">{strings.content.unknown}</p>;
  }
}

interface CommandProps {
  command: string;
  output: string;
  running: boolean;
  exitCode: number | null;
}

/** The output of a command that the agent ran by itself, without a terminal of the gateway. */
export const CommandOutput = memo(function CommandOutput({ command, output, running, exitCode }: CommandProps) {
  return <TerminalBlock terminal={{ terminalId: "", command, output, cut: false, exited: !running, exitCode, signal: null }} />;
});

/** Some agents put the content of a file into a code block. */
const ToolText = memo(function ToolText({ text }: { text: string }) {
  const code = fenced(text);
  return code ? <CodeBlock language={code.language} text={code.text} /> : <Output label={strings.common.output} text={text} />;
});
