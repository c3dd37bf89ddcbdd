import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import "./style/tokens.css";
import "./style/base.css";
import "./style/sidebar.css";
import "./style/menu.css";
import "./style/shell.css";
import "./style/start.css";
import "./style/tasks.css";
import "./style/transcript.css";
import "./style/markdown.css";
import "./style/cards.css";
import "./style/code.css";
import "./style/composer.css";
import "./style/queue.css";
import "./style/permission.css";
import "./style/panel.css";
import "./style/print.css";
import { applyDensity } from "./model/density";
import { closeCoveringPanel } from "./model/panelTab";
import { applyTheme } from "./model/theme";
import { App, firstKeys } from "./view/App";
import { followTabs, followTyping } from "./view/typing";

applyTheme();
applyDensity();
followTyping();
followTabs();
closeCoveringPanel();
const place = document.getElementById("root");
if (!place) throw new Error("index.html has no place for the page");
createRoot(place).render(
  <StrictMode>
    <App keys={firstKeys()} />
  </StrictMode>,
);
