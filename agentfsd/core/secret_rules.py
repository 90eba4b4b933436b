"""Rules that `agentfsd rules add secrets` adds: files that hold passwords and keys by the habits of common programs.

They deny instead of hide: to git, a hidden file that it tracks would be a deleted one.
"""

SECRETS = "secrets"  # the word that stands for all of them

_INSIDE = (
    "deny .env", "deny .env.*", "allow .env.example", "allow .env.sample", "allow .env.template", "allow .env.dist",
    "deny *.pem", "deny *.key", "deny *.p12", "deny *.pfx", "deny *.jks", "deny *.keystore", "deny *.kdbx",
    "deny id_rsa", "deny id_ecdsa", "deny id_ed25519", "deny .netrc", "deny .pgpass", "deny .htpasswd", "deny .git-credentials",
    "deny .vault-token", "deny *.tfstate", "deny *.tfstate.backup", "deny secrets.json", "deny secrets.yaml",
    "deny secrets.yml", "deny credentials.json", "deny service-account*.json",
)  # fmt: skip
_OUTSIDE = (
    "deny ~/.ssh/id_*", "allow ~/.ssh/id_*.pub", "deny ~/.aws", "deny ~/.azure", "deny ~/.config/gcloud", "deny ~/.config/gh",
    "deny ~/.docker/config.json", "deny ~/.git-credentials", "deny ~/.gnupg", "deny ~/.kube", "deny ~/.netrc", "deny ~/.pgpass",
    "deny ~/.password-store", "deny ~/.pypirc", "deny ~/.vault-token",
)  # fmt: skip
SECRET_RULES = _INSIDE + _OUTSIDE
