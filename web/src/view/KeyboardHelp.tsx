// The keyboard shortcuts of the page.

import { Dialog } from "./Dialog";

const GROUPS: [name: string, keys: [what: string, ...keys: string[]][]][] = [
  [
    "Everywhere",
    [
      ["New session", "Alt", "N"],
      ["Next session that needs you", "Alt", "J"],
      ["Search and switch sessions", "Ctrl", "K"],
      ["Show or hide the panel", "Alt", "P"],
      ["These shortcuts", "?"],
    ],
  ],
  [
    "Message",
    [
      ["Send, or queue while the agent works", "Enter"],
      ["New line", "Shift", "Enter"],
      ["Stop the agent", "Esc"],
      ["Earlier message", "↑"],
      ["Commands of the agent", "/"],
      ["Files", "@"],
    ],
  ],
  [
    "Approval",
    [
      ["Choose an option", "1", "…", "9"],
      ["Move between the options", "Tab"],
    ],
  ],
];

export function KeyboardHelp({ onClose }: { onClose(): void }) {
  return (
    <Dialog title="Keyboard shortcuts" className="keyboard-help" onClose={onClose}>
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
          Done
        </button>
      </div>
    </Dialog>
  );
}
