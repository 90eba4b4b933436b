# What bash reads in `agentfsd shell`: the user's own settings, and then the branch goes before the prompt.
if [ -f ~/.bashrc ]; then . ~/.bashrc; fi
PS1="($AGENTFS_BRANCH) $PS1"
