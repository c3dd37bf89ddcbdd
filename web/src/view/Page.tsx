// The frame of a page that shows no session: the menu, a title and the content.

import { type ReactNode, useEffect } from "react";

export function Page({ title, menu, className = "tasks", children }: { title: string; menu: ReactNode; className?: string; children: ReactNode }) {
  useEffect(() => {
    document.title = title;
  }, [title]);
  return (
    <div className={className}>
      <header className="bar">{menu}</header>
      <div className="tasks-body">
        <h1>{title}</h1>
        {children}
      </div>
    </div>
  );
}
