"""Checks deploy/kubernetes without a cluster: the schemas of Kubernetes, and the pod security standard `restricted`.

Every restriction is also checked to fail: each of VIOLATIONS breaks one in a copy of the pod.
"""

import copy
import pathlib
import subprocess
import sys

import kubernetes_validate
import yaml

FOLDER = pathlib.Path(__file__).parents[2] / "deploy/kubernetes"
VERSIONS = ["1.37", "1.33"]
VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}


def violations(pod):
    """The rules of https://kubernetes.io/docs/concepts/security/pod-security-standards/ that the pod violates."""
    of_pod = pod.get("securityContext", {})
    for name in ["hostNetwork", "hostPID", "hostIPC"]:
        if pod.get(name):
            yield name
    if of_pod.get("sysctls"):
        yield "sysctls"
    for volume in pod.get("volumes", []):
        if set(volume) - {"name"} - VOLUMES:
            yield f"volume {volume['name']}"
    for container in pod.get("initContainers", []) + pod["containers"]:
        own = container.get("securityContext", {})
        context = {**of_pod, **own}
        capabilities = own.get("capabilities", {})
        checks = {
            "privileged": not own.get("privileged"),
            "allowPrivilegeEscalation": own.get("allowPrivilegeEscalation") is False,
            "runAsNonRoot": context.get("runAsNonRoot") is True,
            "runAsUser": context.get("runAsUser") != 0,
            "seccompProfile": context.get("seccompProfile", {}).get("type") in ("RuntimeDefault", "Localhost"),
            "drop": "ALL" in capabilities.get("drop", []),
            "add": set(capabilities.get("add", [])) <= {"NET_BIND_SERVICE"},
            "procMount": own.get("procMount", "Default") == "Default",
            "appArmorProfile": context.get("appArmorProfile", {}).get("type") != "Unconfined",
            "hostPort": not any("hostPort" in port for port in container.get("ports", [])),
        }
        for name, holds in checks.items():
            if not holds:
                yield name


def set_to(value, *path):
    def change(pod):
        for name in path[:-1]:
            pod = pod[name]
        pod[path[-1]] = value

    return change


CONTAINER = ("containers", 0, "securityContext")
VIOLATIONS = {
    "hostNetwork": set_to(True, "hostNetwork"),
    "volume tmp": set_to({"name": "tmp", "hostPath": {"path": "/tmp"}}, "volumes", 0),
    "privileged": set_to(True, *CONTAINER, "privileged"),
    "allowPrivilegeEscalation": set_to(None, *CONTAINER, "allowPrivilegeEscalation"),
    "runAsNonRoot": set_to(False, *CONTAINER, "runAsNonRoot"),
    "runAsUser": set_to(0, *CONTAINER, "runAsUser"),
    "seccompProfile": set_to({"type": "Unconfined"}, "securityContext", "seccompProfile"),
    "drop": set_to(["KILL"], *CONTAINER, "capabilities", "drop"),
    "add": set_to(["SYS_ADMIN"], *CONTAINER, "capabilities", "add"),
    "hostPort": set_to([{"containerPort": 8080, "hostPort": 8080}], "containers", 0, "ports"),
}


def main():
    kubectl = pathlib.Path(sys.executable).with_name("kubectl")
    text = subprocess.run([kubectl, "kustomize", FOLDER], check=True, capture_output=True, text=True).stdout
    objects = list(yaml.safe_load_all(text))
    for version in VERSIONS:
        for one in objects:
            kubernetes_validate.validate(one, version, strict=True)
    by_kind = {one["kind"]: one for one in objects}
    assert by_kind["Namespace"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    set_ = by_kind["StatefulSet"]["spec"]
    assert set_["replicas"] == 1, "two gateways would use one volume"
    pod = set_["template"]["spec"]
    assert list(violations(pod)) == [], list(violations(pod))
    for name, change in VIOLATIONS.items():
        broken = copy.deepcopy(pod)
        change(broken)
        assert list(violations(broken)) == [name], f"{name}: {list(violations(broken))}"
    container = pod["containers"][0]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(container)
    assert {"cpu", "memory"} <= set(container["resources"]["limits"])
    labels = set_["template"]["metadata"]["labels"]
    assert by_kind["Service"]["spec"]["selector"].items() <= labels.items()
    policy = by_kind["NetworkPolicy"]["spec"]
    assert policy["podSelector"] == {} and set(policy["policyTypes"]) == {"Ingress", "Egress"}
    [rule] = by_kind["Ingress"]["spec"]["rules"]
    config = next(iter(by_kind["ConfigMap"]["data"].values()))
    assert f'public_url = "https://{rule["host"]}"' in config
    print(f"{len(objects)} objects are valid for Kubernetes {', '.join(VERSIONS)}; {len(VIOLATIONS)} violations are found")


main()
