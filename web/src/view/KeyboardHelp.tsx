// The keyboard shortcuts of the page.

import { strings } from "../strings";
import { Dialog } from "./Dialog";

const GROUPS: [name: string, keys: [what: string, ...keys: string[]][]][] = [
  [
    strings.sidebar.everywhere,
    [
      [strings.common.newSession, "Alt", "N"],
      [strings.sidebar.nextWaiting, "Alt", "J"],
      [strings.sidebar.searchAndSwitch, "Ctrl", "K"],
      [strings.sidebar.togglePanel, "Alt", "P"],
      [strings.sidebar.theseShortcuts, "?"],
    ],
  ],
  [
    strings.sidebar.inMessage,
    [
      [strings.sidebar.sendOrQueue, "Enter"],
      [strings.sidebar.newLine, "Shift", "Enter"],
      [strings.sidebar.stopAgent, "Esc"],
      [strings.sidebar.earlierMessage, "↑"],
      [strings.composer.commandsOfAgent, "/"],
      [strings.common.files, "@"],
    ],
  ],
  [
    strings.sidebar.inApproval,
    [
      [strings.sidebar.toApproval, "Shift", "Tab"],
      [strings.sidebar.chooseOption, "1", "…", "9"],
      [strings.sidebar.chooseAgain, "1", "1"],
    ],
  ],
];

export function KeyboardHelp({ onClose }: { onClose(): void }) {
  return (
    <Dialog title={strings.sidebar.shortcuts} className="keyboard-help" onClose={onClose}>
      <div className="key-groups">
        {GROUPS.map(([name, keys]) => (
          <section key={name}>
            <h2>{name}</h2>
            <dl>
              {keys.map(([what, ...names]) => (
                <div key={what}>
                  <dt>{what}</dt>
                  <dd>
                    {names.map((key, index) => (
                      <kbd key={index}>{key}</kbd>
                    ))}
                  </dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
      <div className="dialog-actions">
        <button className="button" type="button" onClick={onClose}>
          {strings.common.done}
        </button>
      </div>
    </Dialog>
  );
}
