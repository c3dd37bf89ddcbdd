// Contains a failure to render one part, so that the remaining page keeps working.

import { Component, type ReactNode } from "react";
import { strings } from "../strings";

interface Props {
  children: ReactNode;
}

export class Boundary extends Component<Props, { failed: boolean }> {
  override state = { failed: false };

  static getDerivedStateFromError(): { failed: boolean } {
    return { failed: true };
  }

  override render(): ReactNode {
    return this.state.failed ? <p className="reference">{strings.common.partFailed}</p> : this.props.children;
  }
}
