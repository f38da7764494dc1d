; The installer for Windows: `cargo xtask package windows` has makensis make it of the files that are in the zip.
;
;   weir-…-setup.exe /S [/SERVICE] [/D=C:\a folder]     installs without a question, with the service if it says so
;   Uninstall.exe /S                                    takes the program away; conf, html and logs stay
;
; What is in conf and html already is never overwritten.

Unicode true
Target amd64-unicode

!include "FileFunc.nsh"
!include "LogicLib.nsh"
!include "MUI2.nsh"
!include "Sections.nsh"

!define OWN "Software\Weir"
!define LISTED "Software\Microsoft\Windows\CurrentVersion\Uninstall\Weir"

Name "Weir ${VERSION}"
OutFile "${OUT}"
RequestExecutionLevel admin
SetCompressor /SOLID lzma
InstallDir "$PROGRAMFILES64\Weir"
BrandingText " "

VIProductVersion "${VERSION}.0"
VIAddVersionKey "ProductName" "Weir"
VIAddVersionKey "ProductVersion" "${VERSION}"
VIAddVersionKey "FileVersion" "${VERSION}"
VIAddVersionKey "FileDescription" "Weir's installer"
VIAddVersionKey "LegalCopyright" "Apache License 2.0"

!define MUI_ABORTWARNING
!define MUI_FINISHPAGE_SHOWREADME "$INSTDIR\README.txt"
!define MUI_FINISHPAGE_SHOWREADME_NOTCHECKED
!insertmacro MUI_PAGE_COMPONENTS
!insertmacro MUI_PAGE_DIRECTORY
!insertmacro MUI_PAGE_INSTFILES
!insertmacro MUI_PAGE_FINISH
!insertmacro MUI_UNPAGE_CONFIRM
!insertmacro MUI_UNPAGE_INSTFILES
!insertmacro MUI_LANGUAGE "English"

Section "Weir" PROGRAM
    SectionIn RO
    ; A service that this installer has made stops for its new program, and goes on with it.
    StrCpy $1 "1"
    ReadRegStr $0 HKLM "${OWN}" "Service"
    ${If} $0 == "1"
    ${AndIf} ${FileExists} "$INSTDIR\weir.exe"
        nsExec::ExecToLog '"$INSTDIR\weir.exe" service stop'
        Pop $1
    ${EndIf}

    SetOutPath "$INSTDIR"
    File "${STAGE}\weir.exe"
    File "${STAGE}\README.txt"
    File "${STAGE}\LICENSE.txt"
    SetOutPath "$INSTDIR\docs"
    File "${STAGE}\docs\windows.md"
    SetOverwrite off
    SetOutPath "$INSTDIR\conf"
    File "${STAGE}\conf\*"
    SetOutPath "$INSTDIR\html"
    File "${STAGE}\html\*"
    SetOverwrite on
    SetOutPath "$INSTDIR"
    CreateDirectory "$INSTDIR\logs"
    CreateDirectory "$INSTDIR\temp"

    WriteUninstaller "$INSTDIR\Uninstall.exe"
    WriteRegStr HKLM "${OWN}" "InstallDir" "$INSTDIR"
    WriteRegStr HKLM "${LISTED}" "DisplayName" "Weir"
    WriteRegStr HKLM "${LISTED}" "DisplayVersion" "${VERSION}"
    WriteRegStr HKLM "${LISTED}" "Publisher" "The Weir project"
    WriteRegStr HKLM "${LISTED}" "DisplayIcon" "$INSTDIR\weir.exe"
    WriteRegStr HKLM "${LISTED}" "InstallLocation" "$INSTDIR"
    WriteRegStr HKLM "${LISTED}" "UninstallString" '"$INSTDIR\Uninstall.exe"'
    WriteRegStr HKLM "${LISTED}" "QuietUninstallString" '"$INSTDIR\Uninstall.exe" /S'
    WriteRegDWORD HKLM "${LISTED}" "NoModify" 1
    WriteRegDWORD HKLM "${LISTED}" "NoRepair" 1

    ${If} $1 == "0"
        nsExec::ExecToLog '"$INSTDIR\weir.exe" service start'
        Pop $1
    ${EndIf}
SectionEnd

Section /o "Run as a service" SERVICE
    ReadRegStr $0 HKLM "${OWN}" "Service"
    ${If} $0 != "1"
        nsExec::ExecToLog '"$INSTDIR\weir.exe" service install -p "$INSTDIR"'
        Pop $1
        ${If} $1 == "0"
            WriteRegStr HKLM "${OWN}" "Service" "1"
            ; It runs as LocalService; these two folders are for it alone to write to.
            nsExec::ExecToLog 'icacls "$INSTDIR\logs" /grant "NT SERVICE\weir:(OI)(CI)M"'
            Pop $1
            nsExec::ExecToLog 'icacls "$INSTDIR\temp" /grant "NT SERVICE\weir:(OI)(CI)M"'
            Pop $1
            nsExec::ExecToLog '"$INSTDIR\weir.exe" service start'
            Pop $1
        ${EndIf}
    ${EndIf}
SectionEnd

!insertmacro MUI_FUNCTION_DESCRIPTION_BEGIN
    !insertmacro MUI_DESCRIPTION_TEXT ${PROGRAM} "The program, its first configuration and its documentation."
    !insertmacro MUI_DESCRIPTION_TEXT ${SERVICE} "Starts with the machine, as LocalService, at port 80."
!insertmacro MUI_FUNCTION_DESCRIPTION_END

Function .onInit
    SetRegView 64
    ; Where it was installed before, unless the command line says something else.
    ReadRegStr $0 HKLM "${OWN}" "InstallDir"
    ${If} $0 != ""
    ${AndIf} $INSTDIR == "$PROGRAMFILES64\Weir"
        StrCpy $INSTDIR $0
    ${EndIf}
    ${GetParameters} $0
    ClearErrors
    ${GetOptions} $0 "/SERVICE" $1
    ${IfNot} ${Errors}
        !insertmacro SelectSection ${SERVICE}
    ${EndIf}
FunctionEnd

Function un.onInit
    SetRegView 64
FunctionEnd

Section "Uninstall"
    ReadRegStr $0 HKLM "${OWN}" "Service"
    ${If} $0 == "1"
        nsExec::ExecToLog '"$INSTDIR\weir.exe" service remove'
        Pop $1
        ${If} $1 != 0
            ; Without its program nobody could remove it any more.
            MessageBox MB_OK|MB_ICONSTOP "The service could not be removed: look with $\"weir service remove$\" why, and begin again." /SD IDOK
            SetErrorLevel 2
            Abort
        ${EndIf}
    ${EndIf}
    Delete "$INSTDIR\weir.exe"
    Delete "$INSTDIR\README.txt"
    Delete "$INSTDIR\LICENSE.txt"
    Delete "$INSTDIR\docs\windows.md"
    RMDir "$INSTDIR\docs"
    RMDir /r "$INSTDIR\temp"
    Delete "$INSTDIR\Uninstall.exe"
    DeleteRegKey HKLM "${LISTED}"
    DeleteRegKey HKLM "${OWN}"
    ; Only if nothing is in it any more: conf, html and logs stay.
    RMDir "$INSTDIR"
SectionEnd
